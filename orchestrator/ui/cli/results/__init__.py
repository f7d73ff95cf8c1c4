"""Commands on results: fetch, evaluate, collect, compare, report, clean."""
