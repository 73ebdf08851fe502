"""``kernel-embed benchmark``."""
def add_parser(commands):
    pass
