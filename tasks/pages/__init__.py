"""The HTML pages: short views that say who reads, and the boot object that their scripts start from.

Pages show; whatever a person does on them goes through the JSON API.
"""
