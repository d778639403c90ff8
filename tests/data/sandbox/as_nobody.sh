# as_nobody.sh FOLDER COMMAND...: run COMMAND as nobody. Must start as root in a mount namespace of its own.
# $OPEN names folders, separated by colons, that are to be open to everybody in here.
set -eu
folder=$1
shift
mkdir "$folder/opened"
mount -t tmpfs none "$folder/opened"
number=0
IFS=:
for path in $OPEN; do
    number=$((number + 1))
    mkdir "$folder/opened/$number"
    mkdir -m 755 "$folder/opened/$number/upper" "$folder/opened/$number/work"
    mount -t overlay none "$path" \
        -o "lowerdir=$path,upperdir=$folder/opened/$number/upper,workdir=$folder/opened/$number/work"
done
exec setpriv --reuid nobody --regid nogroup --clear-groups --inh-caps=-all "$@"
