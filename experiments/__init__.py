"""Experiments on top of tosca_avalanche: run, compare, ablate, report, distil a backbone."""

import warnings

# Avalanche says this at every import; only its GEM strategy needs a solver
warnings.filterwarnings("ignore", message="no QP solver found")
