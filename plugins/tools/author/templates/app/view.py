"""The page that clients show."""

HTML = """{{view}}"""
