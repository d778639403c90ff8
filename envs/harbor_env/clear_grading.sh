# Runs in a sandbox's bash as root, before the verifier: tells what the agent left where it grades, and removes it.
# Prints KIND, a tab, and what. The folder's name is put together from two halves, so that no command line of this
# script's own looks like one that has to do with it.
before=" $1 "
half=/logs/verifie
rewards=${half}r

# Sets $parent. Here as below nothing is started where the shell itself can do it: this runs before every grading.
find_parent() {
    parent=0
    while read -r key value; do
        [ "$key" = PPid: ] && parent=$value && return
    done 2>/dev/null <"/proc/$1/status"
}

# One line a file among the tests: two numbers that are others once it was changed, and its path. None is opened that
# may have no end, as a pipe and what a link leads to, or is too long to be read here.
list_tests() {
    long=16384 # blocks of 512 bytes
    tell='for file; do echo "$(readlink "$file" | cksum) $file"; done'
    {
        find /tests -mindepth 1 -type f ! -size +$long -exec cksum {} +
        find /tests -mindepth 1 -type f -size +$long -exec stat -c '%Z %s %n' {} +
        find /tests -mindepth 1 ! -type d ! -type f -exec sh -c "$tell" sh {} +
    } 2>/dev/null
}

# The beginning of a file; nothing of a pipe or a device.
beginning() {
    [ -f "$1" ] && timeout 2 head -c 200 "$1" 2>/dev/null
}

own=" 1 "
parent=$$
while [ "$parent" -gt 1 ]; do
    own="$own$parent "
    find_parent "$parent"
done

end_processes() {
    for number in $1; do
        case $own in *" $number "*) continue ;; esac
        words=$(tr '\0\n\t' '   ' 2>/dev/null <"/proc/$number/cmdline" | cut -c1-200)
        [ -n "$words" ] || continue
        kill -9 "$number" 2>/dev/null && printf 'process\t%s\n' "$words"
    done
}

# Processes whose command line names the verifier's folder, that have a file in it open, stand in it, or watch it.
at_the_folder() {
    inode=$(printf '%x' "$(stat -c %i "$rewards" 2>/dev/null || echo 0)")
    {
        grep -lE "${half}[r]" /proc/[0-9]*/cmdline
        find /proc/[0-9]*/fd /proc/[0-9]*/cwd -maxdepth 1 -lname "$rewards*"
        grep -lE "^inotify wd:[0-9a-f]+ ino:$inode " /proc/[0-9]*/fdinfo/*
    } 2>/dev/null | sed -n 's#^/proc/\([0-9]*\)/.*#\1#p' | sort -u
}

# Sets $others: what runs besides what ran before the agent did, whose numbers are in $before.
find_left_over() {
    others=
    for folder in /proc/[0-9]*; do
        number=${folder#/proc/}
        case "$own$before" in *" $number "*) continue ;; esac
        word=
        read -r -d '' word 2>/dev/null <"$folder/cmdline"
        [ -n "$word" ] && others="$others $number"
    done
}

# A process that waits for the verifier to write, to write over it, takes a bait that looks the same.
take_bait() {
    mkdir -p /tests
    [ -e /tests/test.sh ] && own_test= || own_test=1
    # The rewards first: what waits for something else would write before they are there, and be written over.
    printf '{"reward": 0.125}' >"$rewards/reward.json"
    printf '0.125' >"$rewards/reward.txt"
    echo . >"$rewards/test-stdout.txt"
    [ -n "$own_test" ] && echo 'exit 0' >/tests/test.sh
    sleep 0.3
    taken=
    [ "$(beginning "$rewards/reward.json")" = '{"reward": 0.125}' ] && rm -f -- "$rewards/reward.json" || taken=1
    [ "$(beginning "$rewards/reward.txt")" = 0.125 ] && rm -f -- "$rewards/reward.txt" || taken=1
    rm -f -- "$rewards/test-stdout.txt"
    [ -n "$own_test" ] && rm -f -- /tests/test.sh
    [ -n "$taken" ]
}

tell_and_remove_rewards() {
    for file in "$rewards/reward.json" "$rewards/reward.txt"; do
        [ -e "$file" ] || [ -L "$file" ] || continue
        printf 'reward\t%s: %s\n' "$file" "$(beginning "$file" | tr '\n\t' '  ')"
        rm -rf -- "$file"
    done
}

clear_grading() {
    for folder in /logs "$rewards" /tests; do
        if [ -L "$folder" ]; then
            printf 'link\t%s -> %s\n' "$folder" "$(readlink "$folder")"
            rm -f -- "$folder"
        fi
    done
    [ -d "$rewards" ] || { rm -rf -- "$rewards" && mkdir -p "$rewards" && chmod 777 "$rewards"; } || return 1
    find_left_over
    [ -n "$others" ] && end_processes "$(at_the_folder)"
    tell_and_remove_rewards
    find "$rewards" -mindepth 1 ! -type d ! -path "$rewards/reward.*" 2>/dev/null | head -n 100 | sed 's/^/file	/'
    find "$rewards" -mindepth 1 -delete 2>/dev/null
    if [ -e /tests ]; then
        list_tests | head -n 1000 | sed 's/^/test	/'
        [ "$1" = keep ] || find /tests -mindepth 1 -delete 2>/dev/null
    fi
    # A process that rewrites rewards is one of those that are left: none of them is to be trusted then.
    find_left_over
    if [ -n "$others" ] && take_bait; then
        end_processes "$others"
        tell_and_remove_rewards
    fi
    return 0
}
