"""When and how much a machine works, by its owner's preferences; they suspend what runs."""
