# Trains as a job script would: with words of its own before and after.
set -e
echo "before"
python "$(dirname "$0")/loops.py" plain
echo "after $?"
exit 4
