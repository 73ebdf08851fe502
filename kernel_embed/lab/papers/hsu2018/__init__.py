"""Hsu, Nock and Ramos (2018): hyperparameter learning with Rademacher complexity bounds."""
