"""The tables and figures of the three papers as experiments."""

from ..experiment import Experiment, Settings, reproduce
from .cortes2015 import VOTED
from .flaxman2016_grid import GRID, TYPE_TWO
from .flaxman2016_mixtures import WITNESS
from .flaxman2016_ozone import OZONE
from .hsu2018_mnist import MNIST
from .hsu2018_pixels import PIXELS
from .hsu2018_uci import IRIS, UCI

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for experiment in (IRIS, UCI, MNIST, PIXELS, GRID, WITNESS, TYPE_TWO, OZONE, VOTED)
}
"""By the name in ``kernel-embed reproduce NAME``, paper by paper."""

__all__ = ["EXPERIMENTS", "Experiment", "Settings", "reproduce"]
