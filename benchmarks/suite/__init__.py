"""The benchmarks, one file each; every file has ``run(settings)``, which returns tables."""

BENCHMARKS = {
    "mnist-rnn": "mnist_rnn",
    "variations": "variations",
    "mlp": "mlp",
    "import": "imports",
    "first-step": "first_step",
    "memory": "memory",
    "trainer-overhead": "trainer_overhead",
    "loss-curve": "loss_curve",
}
"""The name on the command line and the file."""
