"""The shell wrapper of an earlier version, in pods that may still be there after an upgrade."""

from __future__ import annotations

EARLIER_SCRIPT = (
    ": podsettle;"
    + r"""(shift 2;exec "$@")&c=$! s=;exec 2>/dev/null
f(){ s=$1;kill -$2 $c;}
trap 'f 143 1' 1
trap 'f 130 15' 2
trap 'f 131 15' 3
trap 'f "$s" 10' 10
trap 'f "$s" 12' 12
trap 'f 143 15' 15
z(){ sleep $1||sleep 1;}
z $1 >&2&t=$!
shopt -uo posix
while wait $c;r=$?;kill -0 $c;do :;done
trap '' 10 12
trap 'exit $r' 1 2 3 15
wait $c
wait $c;q=$?
case $q$s in 127|-*);;*)r=$q;esac
[ $s ]&&{ [ $r = 143 ]&&r=$s;exit $r;}
z $2 >&2&kill -0 $t&&wait $t
wait $!;exit $r"""
)
"""The script of the first builds of 0.1.0, to the letter."""
