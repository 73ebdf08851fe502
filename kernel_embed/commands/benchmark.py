"""``kernel-embed benchmark``."""


def add_parser(commands: object) -> None:
    pass
