"""What is measured: the papers' experiments, accuracy, speed and robustness, by one runner.

``python -m experiments`` says how. An experiment is an `Experiment` in the list ``EXPERIMENTS`` of
a module of this package; what its module makes of the results for readers is in ``TABLES`` (text
between the markers of README and docs) and ``PAGES`` (whole files). ``data`` has the sources of
records that do not come with overheard.
"""

from overheard.data.source import add_sources

add_sources("experiments.data")
