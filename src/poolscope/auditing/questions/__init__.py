"""The questions of the audit, one file each: thresholds with their reasons, the judge, the sentence, the answer."""
