"""The workloads of ``pullback train``: one file each, entered here."""

from pullback.cli.workloads import chars, imdb_cnn, imdb_glove, imdb_lstm, mnist_cnn, mnist_gru, mnist_rnn
from pullback.cli.workloads.workload import Job, Workload

__all__ = ["WORKLOADS", "Job", "Workload"]

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        mnist_rnn.WORKLOAD,
        mnist_gru.WORKLOAD,
        mnist_cnn.WORKLOAD,
        imdb_cnn.WORKLOAD,
        imdb_glove.WORKLOAD,
        imdb_lstm.WORKLOAD,
        chars.WORKLOAD,
    )
}
"""Every workload by the name that the command line knows it by."""
