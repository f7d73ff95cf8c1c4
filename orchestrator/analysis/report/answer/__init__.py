"""The page's first section: an answer card per task and one over all tasks."""

from orchestrator.analysis.report.answer.cards import answer_section, styles

__all__ = ["answer_section", "styles"]
