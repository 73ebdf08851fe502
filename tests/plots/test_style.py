"""The palette as readers with two kinds of cones see it, and shapes that do without colors.

Simulation: the matrices of Machado, Oliveira and Fernandes (2009) for complete deuteranopia and protanopia, on linear
RGB. Distance: CIE 1976, in L*a*b*, where 2.3 is just noticeable. The closest two of the palette, green and pink under
deuteranopia, are 17.9 apart; of the first three, which most pictures use, no two are closer than 30.
"""

import itertools

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from kernel_embed.plots.style import COLORS, DASHES, MARKERS, TINT, certainty_colors, styled

DICHROMATS = {
    "normal": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
LEAST, LEAST_OF_THREE = 15.0, 30.0
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(color, matrix):
    """L*a*b* of a color as seen through ``matrix``."""
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(matrix @ linear, 0, 1) / (TO_XYZ @ np.ones(3))
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def least_distance(colors, matrix):
    return min(np.linalg.norm(lab(a, matrix) - lab(b, matrix)) for a, b in itertools.combinations(colors, 2))


@pytest.mark.parametrize("sight", DICHROMATS)
def test_every_two_classes_can_be_told_apart(sight):
    assert least_distance(COLORS, DICHROMATS[sight]) > LEAST
    assert least_distance(COLORS[:3], DICHROMATS[sight]) > LEAST_OF_THREE


def test_the_simulation_sees_what_it_should():
    """Red and green of equal lightness become one color; that is what the old maps did."""
    old = ("#b35900", "#5c7300")
    assert least_distance(old, DICHROMATS["normal"]) > LEAST
    assert least_distance(old, DICHROMATS["deuteranopia"]) < LEAST


def test_shapes_say_the_same_without_colors():
    assert len(set(MARKERS)) == len(set(map(str, DASHES))) == len(COLORS)


@pytest.mark.parametrize("m", [2, 3, 7])
def test_lightness_is_certainty(m):
    """From ignorance to certainty a map goes from white to a tint of its class, darker at every step."""
    steps = np.linspace(0, 1, 11)[:, None]
    path = (1 - steps) / m + steps * np.eye(m)[0]
    colors = certainty_colors(path)
    np.testing.assert_allclose(colors[0], 1.0, atol=1e-9)
    np.testing.assert_allclose(colors[-1], 1 - TINT * (1 - np.array(to_rgb(COLORS[0]))), atol=1e-9)
    lightness = [lab(tuple(color), np.eye(3))[0] for color in colors]
    assert (np.diff(lightness) < 0).all()


def test_the_style_has_a_scope():
    import matplotlib

    before = dict(matplotlib.rcParams)
    with styled():
        assert matplotlib.rcParams["axes.spines.top"] is False
    assert dict(matplotlib.rcParams) == before
