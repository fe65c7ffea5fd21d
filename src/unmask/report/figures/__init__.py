"""Pictures as inline SVG: plain functions from figures to text. Colours come from the page's style sheet.

Every picture is drawn about as wide as a phone, so that its letters stay readable there; wide screens put
several side by side.
"""
