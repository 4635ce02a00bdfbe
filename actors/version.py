"""The version, here and nowhere else."""

VERSION = "0.1.0"
