"""The page a person looks at after a run: ``ReportBuilder`` collects during it, ``write_report`` writes it."""

from handrail.runtime.report.builder import ReportBuilder
from handrail.runtime.report.page import write_report

__all__ = ["ReportBuilder", "write_report"]
