"""List the code, logs and data in the questions. The choice among them does not depend on quality.

In a template `$noun` is a slot, as in moves.py; code that needs a dollar sign writes `$$`. Templates in LONG are
repeated for many lines, as in pasted logs and dumps: they make some questions longer than 512 tokens.
"""

SHORT = (
    """\
import $module1

def $verb1_$noun1($noun2, $noun3=$number):
    result = []
    for $noun1 in $noun2:
        if $noun1["$noun3"] > $number:
            result.append($module1.$verb2($noun1, mode='$adjective1'))
    return result
""",
    """\
SELECT a.$noun1_id, b.$noun2, COUNT(*) AS $adjective1_$noun3
FROM $noun1 a LEFT JOIN $noun2 b ON a.id = b.$noun1_id
WHERE b.$noun3 <> '$adjective2' AND a.$noun2 >= $number
GROUP BY a.$noun1_id, b.$noun2;
""",
    """\
const $noun1 = await $module1.$verb1("/api/$noun2/" + id, { $noun3: $number });
$noun1.forEach(x => {
  if (x.$adjective1 && !x.$adjective2) { this.$verb2(x.$noun3); }
});
""",
    """\
public class $Noun1$Noun2 {
    private final Map<String, $Noun3> $noun3s = new HashMap<>();

    public void $verb1($Noun3 $noun3) throws $errorException {
        $noun3s.put($noun3.get$Noun1(), $noun3);   // $adjective1?
    }
}
""",
    """\
#include <$module1.h>

int $verb1_$noun1(struct $noun2 *p, int n) {
    for (int i = 0; i <= n; i++) {
        if (p[i].$noun3 == $number && p->$adjective1 < 0x$hex) return i;
    }
    return -1;
}
""",
    """\
<div class="$noun1-$noun2" id="$noun3$digit">
  <a href="#$noun2" onclick="$verb1('$adjective1')">$verb2</a>
  <input type="text" name="$noun1" value="$number">
</div>
""",
    """\
$$$noun1 = $$_POST['$noun2'];
if (!isset($$$noun1) || count($$$noun1) > $number) {
    echo "$adjective1 $noun3\\n";
    $verb1_$noun2($$$noun1, '$hex');
}
""",
    """\
{
  "$noun1": {"$noun2": $number, "$adjective1": true},
  "$noun3": ["$hex", "$person", "$city"],
  "$verb1At": "$date"
}
""",
    """\
$module1:
  image: $module2/$noun1:$version
  ports: ["$number:$number"]
  environment:
    - $noun2_$noun3=$adjective1
    - PASSWORD=~secret^\\$$HOME
""",
    """\
df <- read.csv("$noun1_$noun2.csv", sep = ";")
df$$$noun3 <- $verb1(df$$$noun1, na.rm = TRUE) / $number
$module1(df[df$$$noun3 > 0.$number, ], type = "$adjective1")
""",
    """\
fn $verb1($noun1: &[$Noun2], $noun3: usize) -> Option<$Noun2> {
    $noun1.iter().filter(|x| x.$noun3 != $number).map(|x| x.$verb2()).next()
}
""",
    """\
$noun1.out: $noun2.src $$(wildcard *.h)
\t$module1 --$verb1 $noun2.src > $$@ && echo "$adjective1: $number"
\t-rm -f ~/$noun3/*.tmp
""",
    """\
Sub $Verb1$Noun1()
    Dim $noun2 As Range, i As Long
    For i = 2 To Cells(Rows.Count, $digit).End(xlUp).Row
        If Cells(i, $digit).Value = "$adjective1" Then Rows(i).$Verb2
    Next i
End Sub
""",
)

ERRORS = (
    "$error: $noun1 '$adjective1' (code $number)",
    'File "$noun1_$noun2.src", line $number\n  $module1.$verb1($noun3)\n$error: cannot $verb1 $noun3 at 0x$hex',
    "[$date] $module1 ERROR $error - $noun1/$noun2 <$hex>: expected $number, got $number",
    "    at $module1.$Verb1$Noun1.$verb2($Noun1.src:$number)\n    at $module2.$verb1 (line $number)\nCaused by: $error",
)

LONG = (
    "[$date] INFO  $module - $verb $noun=$number $adjective host=$hex.$module.example",
    '    at $module.$noun.$Verb$Noun.$verb($Noun.src:$number)  // "$adjective"',
    '  {"id": $number, "$noun": "$adjective", "$noun_$noun": $number, "$verb": "$hex"},',
    "INSERT INTO $noun ($noun, $noun, $verb) VALUES ('$person', $number, '$city');",
    '    private $Noun $adjective$Noun = new $Noun($number, "$noun");  // $verb the $noun',
)
