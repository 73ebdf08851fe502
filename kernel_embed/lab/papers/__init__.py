"""The tables and figures of the three papers, and the studies beside them, as values that run."""

from .cortes2015.penalties import VotedPenalties
from .cortes2015.voted import VotedTable
from .experiment import Experiment, Settings, reproduce
from .flaxman2016.coverage import BandCoverage
from .flaxman2016.graphs import CausalGraphs
from .flaxman2016.grid import GridOfGaussians
from .flaxman2016.levels import LevelStudy
from .flaxman2016.ozone import OzoneGraph
from .flaxman2016.posterior_coverage import PosteriorCoverage
from .flaxman2016.posterior_ranks import PosteriorRanks
from .flaxman2016.powers import PowerStudy
from .flaxman2016.prior_chains import PriorChains
from .flaxman2016.type_two import TypeTwoErrors
from .flaxman2016.witness import WitnessOfMixtures
from .hsu2018.averaged import AveragedClassifiers
from .hsu2018.iris import IrisStarts
from .hsu2018.mnist import NetworkHeads
from .hsu2018.pixels import PixelLengthscales
from .hsu2018.uci import UCITable

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        IrisStarts(),
        UCITable(),
        NetworkHeads(),
        PixelLengthscales(),
        AveragedClassifiers(),
        GridOfGaussians(),
        WitnessOfMixtures(),
        TypeTwoErrors(),
        OzoneGraph(),
        CausalGraphs(),
        LevelStudy(),
        PowerStudy(),
        BandCoverage(),
        PosteriorCoverage(),
        PosteriorRanks(),
        PriorChains(),
        VotedTable(),
        VotedPenalties(),
    )
}
"""By the name that ``kernel-embed reproduce`` takes, paper by paper."""

__all__ = ["EXPERIMENTS", "Experiment", "Settings", "reproduce"]
