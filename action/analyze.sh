#!/usr/bin/env bash
# Records the training script if there is one, analyzes the traces, and annotates lines of the pull request.
set -euo pipefail

# Prints each word of a line on its own line. Quotes work as in a shell; nothing is expanded.
words() {
    [ -z "${1//[[:space:]]/}" ] || xargs -n 1 printf '%s\n' <<<"$1"
}

mapfile -t command < <(words "$RUN")
mapfile -t recording < <(words "$RUN_OPTIONS")
mapfile -t paths < <(words "$TRACES")
mapfile -t further < <(words "$OPTIONS")
mapfile -t gates < <(words "$FAIL_ON")
mkdir -p "$FOLDER"

if [ ${#command[@]} -gt 0 ]; then
    "$PYTHON" -m traceopt run --no-analyze --logdir "$FOLDER/traces" "${recording[@]}" -- "${command[@]}"
    paths=("$FOLDER/traces")
fi

arguments=(--html "$FOLDER/traceopt-$LABEL.html" --json "$FOLDER/result.json" --markdown "$FOLDER/comment.md")
arguments+=(--sarif "$FOLDER/traceopt.sarif" --write-baseline "$FOLDER/baseline.json")
arguments+=(--job-summary --format github --label "$LABEL" --source "$SOURCE" --quiet)
[ -z "$BASELINE" ] || arguments+=(--baseline "$BASELINE")
for gate in "${gates[@]}"; do
    case "$BASELINE:$gate" in
        :*=[+-]* | :*new-*) echo "No baseline yet, so the gate $gate is skipped." ;;
        *) arguments+=(--fail-on "$gate") ;;
    esac
done

code=0
"$PYTHON" -m traceopt analyze "${arguments[@]}" "${further[@]}" -- "${paths[@]}" || code=$?
# Exit code 1 is a failed gate: write the report and the comment first.
if [ "$code" -gt 1 ] || [ ! -e "$FOLDER/comment.md" ]; then
    exit "$code"
fi
{
    echo "code=$code"
    echo "baseline=$FOLDER/baseline.json"
    echo "json=$FOLDER/result.json"
    echo "markdown=$FOLDER/comment.md"
    echo "sarif=$FOLDER/traceopt.sarif"
} >>"$GITHUB_OUTPUT"
