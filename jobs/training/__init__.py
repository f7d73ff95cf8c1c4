"""What any trainer uses: context, checkpoints, loggers, measures, provenance, plug-ins, video."""
