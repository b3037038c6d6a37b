"""The demo pool: pictures with known truth, made from photographs that installed packages ship."""
