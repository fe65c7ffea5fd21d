"""Training of the embedded model: curriculum, network, block-diffusion objective, trainer and export."""
