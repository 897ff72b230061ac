#!/usr/bin/env bash
# Says what is wrong with the inputs of the action, before any time is spent.
set -euo pipefail

fail() {
    echo "::error title=traceopt::$1"
    exit 2
}

[ -n "$RUN$TRACES" ] || fail "say what to record (run: train.py) or what to analyze (traces: logs)"
[ -z "$RUN" ] || [ -z "$TRACES" ] || fail "give either run or traces"
[[ "$LABEL" =~ ^[A-Za-z0-9_.-]{1,80}$ ]] || fail "label: letters, digits, dots and dashes, at most 80"
case "$COMMENT" in
    changed | always | never) ;;
    *) fail "comment: changed, always or never" ;;
esac
for words in "$RUN" "$TRACES" "$OPTIONS" "$FAIL_ON"; do
    xargs -n 1 <<<"$words" >/dev/null 2>&1 || fail "a quote that does not close: $words"
done
