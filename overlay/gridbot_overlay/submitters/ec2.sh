#!/bin/sh
# Run once by cloud-init, as root.  Its end is that of the machine, and of what that costs.
umask 077
words=$(mktemp)
pilot() (
    set -e
    # Whatever hangs: EC2 knows no walltime.
    shutdown -P +@minutes@
    # Who may ask for this script has the pilots' key.  systemd-networkd removes rules that are
    # not its own but for those of "kernel" (networkd.conf(5), ManageForeignRoutingPolicyRules).
    ip rule add to 169.254.169.254 pref 1 protocol kernel prohibit
    id gridbot 2> /dev/null || useradd --system gridbot
    folder=$(mktemp -d)
    cat > "$folder/pilot.sh" <<'GRIDBOT_PILOT_SCRIPT'
@script@
GRIDBOT_PILOT_SCRIPT
    chown -R gridbot "$folder"
    cd "$folder"
    runuser -u gridbot -- env HOME="$folder" /bin/sh "$folder/pilot.sh"
)
pilot > /dev/null 2> "$words"
# To the console, where the constructor reads it when the machine has gone.
printf '\n%s\n' '@begin@'
tail -c @bytes@ "$words"
printf '\n%s\n' '@end@'
shutdown -P now
