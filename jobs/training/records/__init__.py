"""What a run leaves beside its policy: logs, films, figures, versions. None of it decides a result."""
