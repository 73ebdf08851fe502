"""The tables and figures of the three papers as experiments."""

from ..experiment import Experiment, Settings, reproduce
from .cortes2015.voted import VOTED
from .flaxman2016.chains import WITNESS
from .flaxman2016.grid import GRID, TYPE_TWO
from .flaxman2016.ozone import OZONE
from .hsu2018.iris import IRIS
from .hsu2018.mnist import MNIST
from .hsu2018.pixels import PIXELS
from .hsu2018.uci import UCI

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for experiment in (IRIS, UCI, MNIST, PIXELS, GRID, WITNESS, TYPE_TWO, OZONE, VOTED)
}
"""By the name in ``kernel-embed reproduce NAME``, paper by paper."""

__all__ = ["EXPERIMENTS", "Experiment", "Settings", "reproduce"]
