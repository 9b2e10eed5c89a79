"""Words, colours and fonts of the images of `ocr_images.py`: other ones than those of the pocket world."""

from pathlib import Path

CITIES = ("Ghent", "Porto", "Lyon", "Bergen", "Krakow", "Tampere", "Valencia", "Graz", "Aarhus", "Leipzig",
          "Cork", "Malmo", "Trieste", "Utrecht", "Bilbao", "Turku")  # fmt: skip
GOODS = ("Oat Flakes", "Green Pesto", "Olive Oil", "Tomatoes", "Rye Bread", "Orange Juice", "Dark Chocolate",
         "Yoghurt", "Basmati Rice", "Apple Tart", "Sparkling Water", "Mushrooms", "Feta", "Lentils")  # fmt: skip
PEOPLE = ("Marta Lindqvist", "Oscar Beaumont", "Priya Raman", "Tomas Novak", "Hannah Weiss", "Yusuf Demir",
          "Elena Petrova", "Kwame Boateng", "Sofia Marino", "Liam Gallagher")  # fmt: skip
FIELDS = ("Transport", "Housing", "Health", "Leisure", "Education", "Clothing", "Energy", "Savings", "Insurance")
STREETS = ("Harbour Road", "Mill Lane", "Chestnut Avenue", "Station Square", "Riverside Drive", "Abbey Street",
           "Orchard Way", "Victoria Terrace")  # fmt: skip
SIGNS = ("Bakery", "Pharmacy", "Lost Property", "Bicycle Hire", "Ticket Office", "Left Luggage", "Reading Room",
         "Fire Exit", "Boat Trips", "Farm Shop")  # fmt: skip
STORES = ("Nordmark Foods", "Bellini Market", "The Pantry", "Hilltop Grocers", "Kaufhaus Mitte")
INKS = ((20, 20, 20), (0, 40, 90), (90, 20, 20), (40, 40, 40), (10, 70, 40))
PAPERS = ((255, 255, 255), (250, 248, 240), (232, 240, 250), (244, 236, 228), (225, 225, 225))
HUES = ((70, 130, 180), (220, 120, 60), (80, 160, 90), (170, 100, 170), (200, 180, 60), (120, 120, 130))
FONTS = Path("/usr/share/fonts/truetype/dejavu")
FACES = ("DejaVuSans", "DejaVuSerif", "DejaVuSansMono", "DejaVuSans-Bold", "DejaVuSerif-Italic",
         "DejaVuSansCondensed", "DejaVuSerif-Bold", "DejaVuSansCondensed-Oblique", "DejaVuSansMono-Bold")  # fmt: skip
