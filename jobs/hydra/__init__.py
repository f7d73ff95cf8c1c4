"""Read overrides of Hydra's command line with Hydra's own parser."""
