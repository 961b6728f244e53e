"""The benchmark `python -m bench`: podsettle's costs, compared with other servers' costs."""
