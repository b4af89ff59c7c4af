"""Groups of synonyms, as far as a page needs them."""

from __future__ import annotations

_GROUPS = """
big large huge enormous gigantic
small tiny little mini petite
red scarlet crimson vermillion
happy cheerful joyful gleeful delighted
sad unhappy sorrowful miserable tragic
angry mad furious irritated
evil wicked immoral sinful corrupt depraved
wrong incorrect mistaken erroneous
real genuine actual
strange odd peculiar unusual weird
stop cease halt end finish
scared terrified panicked fearful frightened afraid
quiet calm peaceful serene mild
old aged archaic
love like adore favor
kill murder assassinate
keep retain preserve sustain maintain
hide conceal camouflage
hate despise loathe detest dislike
funny humorous amusing comical laughable
fat fleshy plump chubby
stupid dumb dull unwise
delicious savory delectable appetizing
cut slice carve chop
brave courageous fearless
begin start initiate launch
answer reply response
television televisions tv tvs
house home houses homes
fire flame fires flames
pig pork swine
rabbit rabbits bunny bunnies
car cars automobile automobiles vehicle vehicles
water
"""
_GROUP_OF = {
    word: number for number, line in enumerate(_GROUPS.split("\n")) for word in line.split()
}


def same_meaning(one: str, other: str) -> bool:
    one, other = one.lower(), other.lower()
    return one == other or (
        one in _GROUP_OF and other in _GROUP_OF and _GROUP_OF[one] == _GROUP_OF[other]
    )
