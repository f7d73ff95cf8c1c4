"""Fetch results from other machines and buckets, delete them there, and upload W&B logs."""
