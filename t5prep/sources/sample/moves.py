"""List the kinds of sentences in a question, and how likely each is in each class of quality.

A move is a kind of sentence. Every move occurs in every class: a good question may open with a greeting, an
opinion may be asked for with care. Only the odds differ, so quality can be learned from several sentences together and
never from one word. In a template `$noun` is a slot (see words.py; with a digit it keeps its word for the whole
question) and `[a|b|]` is one of its alternatives.
"""

import dataclasses

CLASSES = ("HQ", "LQ_EDIT", "LQ_CLOSE")


@dataclasses.dataclass(frozen=True)
class Move:
    """Describe a kind of sentence: its weight in each of CLASSES, and its templates.

    Questions keep the order of MOVES.
    """

    name: str
    weights: tuple[float, float, float]
    templates: tuple[str, ...]


def _move(name: str, weights: tuple[float, float, float], templates: str) -> Move:
    return Move(name, weights, tuple(line.strip() for line in templates.strip().splitlines()))


TITLES = (
    _move(
        "precise",
        (12, 2, 0.8),
        """
        $error when I $verb1 [a|the] $adjective1 $noun1 [in|with] $lang1
        $lang1: $verb1 [a|every] $noun1 without losing the $adjective1 $noun2
        Why does $lib1 $verb1 the $noun1 twice [after|before] $lib2 has to $verb2 it?
        $lib1 $version: cannot $verb1 $adjective1 $noun1, $error
        How do I $verb1 the $noun1 of a $noun2 by its $adjective1 $noun3 in $lang1?
        $adjective1 $noun1 is $adjective2 only [when|if] $lib1 and $lib2 run together
        """,
    ),
    _move(
        "vague",
        (0.8, 9, 1.3),
        """
        [problem|trouble|help] with $noun1 in $lang1
        $lang1 $noun1 [not working|does nothing|is wrong]
        how to $verb1 $noun1 $lang1
        my $noun1 [never|does not] $verb1 [anymore|at all|correctly]
        $lang1 error with $adjective1 $noun1
        [strange|weird] $noun1 in my $lang1 [code|project|program]
        """,
    ),
    _move(
        "broad",
        (0.8, 0.9, 12),
        """
        [Best|Easiest|Right] way to [learn|use|start] $lang1 for a $noun1 [website|app|system]?
        $lang1 or $lang2 for [a|my] $adjective1 $noun1?
        [Is|Are] $lib1 and $lib2 better than $lib3?
        [Need|Want|Looking for] a $lang1 [program|script|library] to $verb1 $noun1
        What is the difference between $lib1 and $lib2 [nowadays|in general]?
        [Ideas|Advice|Tutorial] for a $noun1 and $noun2 [project|assignment] in $lang1
        """,
    ),
)

MOVES = (
    _move(
        "greeting",
        (0.8, 4, 1.5),
        """
        [Hi|Hello|Hey|Good morning] [all|everyone|guys|friends],
        [Hi|Hello] from $city, this is my first [question|post] here.
        I am [new|a beginner] [to|in] $lang1 so sorry [if this is basic|for my English].
        [Dear all|Hey there], I have a [problem|question] about $noun1.
        """,
    ),
    _move(
        "setting",
        (8, 1.6, 0.8),
        """
        I use $lib1 $version with $lang1 on [a|my] $machine.
        The $machine runs $lib2 $version, and the $noun1 is stored [by|in] $lib1.
        Our $adjective1 $noun1 is served by $lib1 $version behind $lib2.
        [This is|I have] a $noun1 of $number $noun2 entries, read from a $adjective1 $noun3.
        """,
    ),
    _move(
        "goal",
        (3, 3, 3),
        """
        I [want|am trying|need] to $verb1 the $noun1 of each $noun2.
        [My|Our] $noun1 should $verb1 [a|the] $adjective1 $noun2 [every|once a] $noun3.
        The idea is to $verb1 the $adjective1 $noun1 and then $verb2 its $noun2.
        $person [from|in] $city asked me to $verb1 the $noun1.
        I am making a $noun1 that can $verb1 and $verb2 $adjective1 $noun2.
        """,
    ),
    _move(
        "attempt",
        (9, 1.4, 0.8),
        """
        I [have tried|tried] to $verb1 the $noun1 first, [but|and] then the $noun2 stays $adjective1.
        According to the documentation of $lib1, $verb1 should $verb2 the $noun1.
        Following [the manual|that answer], I set $noun1 to “$adjective1” and ran $lib1 again.
        [So far|Until now] I call $verb1($noun1) before $verb2, as [shown below|in this example].
        With $number $noun1 entries it works; with $number it does not.
        """,
    ),
    _move(
        "failure",
        (5, 5, 0.8),
        """
        It [fails|stops] with $error[| after $number rows| in line $number].
        Then $lib1 [raises|throws|reports] $error: “$noun1 is $adjective1”.
        The log [shows|says] $error: cannot $verb1 $noun1.
        But I [get|see] $error [every time|when I $verb1 it].
        """,
    ),
    _move(
        "expected",
        (9, 1, 0.7),
        """
        [I expected|Expected]: $number $noun1 entries; [actual|what I got]: $number.
        The result should be $number, but it is $number.
        I would expect the $noun1 to be $adjective1, [yet|whereas] it is $adjective2 after $lib1 has run.
        The same $noun1 gives $number with $lib1 and $number with $lib2.
        """,
    ),
    _move(
        "narrowed",
        (8, 0.7, 0.6),
        """
        I reduced it to the [minimal|smallest] example [below|above]; without $verb1 the $noun1 is correct.
        It happens only if the $noun1 is $adjective1, [on|with] version $version but not $version.
        [Stepping through|In the debugger], $noun1 is already $adjective1 before $lib1 is called.
        I have [checked|verified] that $noun1 and $noun2 are the same in both cases.
        """,
    ),
    _move(
        "story",
        (2, 2.5, 2.5),
        """
        $person and I [work|study] together in $city and we share one $machine.
        Yesterday the $noun1 was fine $mark [and|but] today it is $adjective1.
        We have $number $noun1 files and a $adjective1 $noun2[| from $person].
        My [teacher|boss|colleague] $person likes $lib1 more than $lib2.
        """,
    ),
    _move(
        "precise_ask",
        (9, 1.1, 0.7),
        """
        How can I $verb1 the $noun1 so that $lib1 does not $verb2 it [again|twice]?
        Which $noun1 does $lib1 $verb1 when the $noun2 is $adjective1?
        Is this [a bug in|the documented behaviour of] $lib1, or do I $verb1 the $noun1 [wrongly|too early]?
        Why is $noun1 $adjective1 here, [although|even though] $verb1 has returned?
        """,
    ),
    _move(
        "vague_ask",
        (0.8, 11, 1.2),
        """
        [What is wrong|What am I doing wrong|Any idea why] with the $noun1 and the $noun2 of my $adjective1 $noun3?
        It [just does not work|is not working|does nothing], [how to fix it|how can I solve this]?
        [Can|Could] someone [explain|tell me] why [this happens|it is like this]?
        I don’t know what to do with [this|the] $noun1 and why it does not $verb1 the $noun2.
        [Where|What] is the [mistake|problem] in my code for the $adjective1 $noun1?
        """,
    ),
    _move(
        "begging",
        (0.8, 7, 2),
        """
        Please help me, I [need|have] to finish the $noun1 and the $noun2 [today|before the exam|by tomorrow].
        [Any|Some] help with [this|the] $noun1 [is|would be] [appreciated|great] $mark
        I [searched|googled] a lot and found nothing[| about $noun1].
        I have been stuck [for days|since last week] [and it is urgent|and I can’t sleep].
        """,
    ),
    _move(
        "errand",
        (0.8, 0.9, 11),
        """
        [Write|Give|Send] me [the|a] [full|complete|whole] code [to|that can] $verb1 [a|the] $noun1 and $verb2 its $noun2.
        I need a program that can $verb1 $noun1, $verb2 $noun2 and print the $noun3.
        [Task|Exercise] $digit: $verb1 [a|an] $adjective1 $noun1 of $number and $verb2 [all|the] $noun2.
        I don’t know $lang1, so [just|only] tell me the code for a $adjective1 $noun1 with a $noun2.
        How [much|long] does it [cost|take] to [build|make] a $adjective1 $noun1 with a $noun2?
        """,
    ),
    _move(
        "opinion",
        (0.8, 0.9, 13),
        """
        [Which|What] is the best [framework|language|library] for $noun1 and $noun2 [in your opinion|nowadays]?
        Is $lang1 [still worth learning|better than $lang2|good] for a $noun1 [developer|company]?
        [What do you think|Your thoughts] about $lib1 [versus|compared to] $lib2 for $adjective1 $noun1?
        [Can|Could] you [recommend|suggest] a [good|free] [book|course|tool] [for|about] $noun1?
        [My|The] problem is that I am confused between $lib1 and $lib2, [please suggest|which one should I choose]?
        """,
    ),
    _move(
        "thanks",
        (1.5, 2.5, 2),
        """
        [Thanks|Thank you|Many thanks] [in advance|for your time][!|.]
        [Regards|Cheers|Greetings], $person
        Thanks for [reading|any hint] $mark
        """,
    ),
)

# These occur equally in all classes: inline code must not reveal the class.
ASIDES = (
    "In short: `$verb1($noun1)`.",
    "See `$noun1_$noun2 = $number`.",
    "The name is `$module1.$verb1`.",
    "Here `$noun1` stands for `$adjective1_$noun2`.",
)

# The share of sentences that are written carelessly, by class.
CARELESS = (0.05, 0.42, 0.18)

# Spelling mistakes of careless sentences. Each is made by chance, so the correct word stays the most common everywhere.
SLIPS = {
    "please": "plz",
    "Please": "Pls",
    "the": "teh",
    "does not": "doesnt",
    "don’t": "dont",
    "can’t": "cant",
    "because": "becouse",
    "without": "whitout",
    "and": "an",
    "with": "wiht",
    "should": "shoud",
    "which": "wich",
    "Which": "Wich",
    "your": "ur",
    "you": "u",
    "work": "wrok",
    "correctly": "correclty",
    "problem": "porblem",
    "before": "befor",
    "after": "aftr",
    "then": "than",
    "when": "wen",
    "every": "evry",
    "already": "allready",
    "I am": "im",
    "I have": "ive",
}
