"""What any trainer uses: context, checkpoints, loggers, provenance, plug-ins and video."""
