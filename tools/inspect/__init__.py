"""Reading of journal containers wherever they are: records as text or JSON, selections, and damage."""
