def write_report(comparison, ranked, path):
    return path
