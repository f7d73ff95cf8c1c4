"""The page's first section: an answer card per task and one over all tasks; the fairness audit."""

from orchestrator.analysis.report.answer.audit import audit_section
from orchestrator.analysis.report.answer.cards import answer_section, styles
from orchestrator.analysis.report.answer.evidence import evidence_section
from orchestrator.analysis.report.answer.thresholds import threshold_section

__all__ = ["answer_section", "audit_section", "evidence_section", "styles", "threshold_section"]
