"""The papers' tables and figures as runnable experiments."""
