"""The table of results: our figures beside the published ones."""

from kernel_embed.lab.papers.cortes2015.voted_table import METHODS, TABLE_1, chosen_vote, markdown, summary


def cell(method, error, votes, validation=10.0, dataset="ionosphere"):
    printed = TABLE_1[dataset][METHODS.index(method)]
    return {
        "family": "polynomial",
        "scaling": "unit norm",
        "dataset": dataset,
        "method": method,
        "error": error,
        "std": 1.0,
        "votes": votes,
        "validation_error": validation,
        "printed_error": printed.error,
        "printed_std": printed.std,
        "printed_votes": printed.votes,
    }


def test_summary_counts_what_it_says():
    cells = [
        cell("L2-SVM", 6.0, 100.0),
        cell("L1-SVM", 7.0, 50.0),
        cell("VKR trace", 5.5, 45.0, validation=4.0),
        cell("VKR dimension", 1.0, 1.0, validation=5.0),
    ]
    assert chosen_vote(cells)["method"] == "VKR trace"
    (row,) = summary(cells)
    assert row == {
        "family": "polynomial",
        "scaling": "unit norm",
        "datasets": 1,
        "within": 1,  # 5.5 ≤ 3.99 + 2.12
        "sparse": 1,  # 45 ≤ 1.5 × 30.6
        "compared": 1,
        "below_both": 1,
        "either_below_both": 1,
    }
    worse = [*cells[:2], cell("VKR trace", 6.2, 46.0)]
    assert [summary(worse)[0][name] for name in ("within", "sparse", "below_both")] == [0, 0, 0]
    assert summary(worse[1:])[0]["compared"] == 0


def test_markdown_has_ours_above_the_published():
    lines = markdown([cell("VKR trace", 4.256, 40.2)], "polynomial", "unit norm").splitlines()
    assert lines[0] == "| data set | L2-SVM | L1-SVM | VKR dimension | VKR trace |"
    assert lines[2] == "| ionosphere | — | — | — | 4.26 ± 1.00 / 40.2 |"
    assert lines[3].endswith("| *3.99 ± 2.12 / 30.6* |")
    assert len(lines) == 4
