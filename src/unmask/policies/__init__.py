"""Ways of reusing work between denoising steps, each a small class that answers with plans."""
