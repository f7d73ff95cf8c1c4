#!/bin/sh
# Install or list the Debian packages that the tests need.
#
#   tests/packages.sh base      install those that every test needs
#   tests/packages.sh install   install all of them
#   tests/packages.sh missing   list what this machine lacks, a line each: MARKER `package` NAME, or MARKER `do` STEP
#
# Packages come by apt, as root or by a sudo that asks nothing. Tests whose marker lacks something are left out by
# tests/conftest.py; only a package that every test needs ends this script with 1.
set -u
PATH=$PATH:/usr/sbin:/sbin # daemons, in folders that a user's PATH lacks
PYTHON=${PYTHON:-python3}

# package, what shows that it is there, markers of the tests that need it (`base`: every test)
PACKAGES='
git                  program:git            base
make                 program:make           base
procps               program:ps             base
ca-certificates      file:/etc/ssl/certs/ca-certificates.crt base
python3              python:sys             base
python3-venv         python:ensurepip,venv  base
slurm-wlm            program:slurmctld      slurm sky
slurm-wlm            program:slurmd         slurm sky
slurmdbd             program:slurmdbd       slurm sky
munge                program:munged         slurm sky
mariadb-server-core  program:mariadbd       slurm sky
mariadb-client-core  program:my_print_defaults slurm sky
gridengine-master    file:/usr/lib/gridengine/sge_qmaster gridengine
gridengine-exec      file:/usr/lib/gridengine/sge_execd gridengine
gridengine-client    program:qsub           gridengine
msmtp-mta            program:sendmail       gridengine
openssh-server       program:sshd           ssh sky
openssh-client       program:ssh            ssh sky
rsync                program:rsync          ssh sky
curl                 program:curl           sky
chromium             program:chromium       browser
fuse                 program:fusermount     fuse
libfuse2             library:libfuse.so.2   fuse
strace               program:strace         strace
zsh                  program:zsh            shells
fish                 program:fish           shells
libgl1               library:libGL.so.1     opengl
libglu1-mesa         library:libGLU.so.1    opengl
libegl1              library:libEGL.so.1    opengl
libegl-mesa0         library:libEGL_mesa.so.0 opengl
libgl1-mesa-dri      files:/usr/lib/*/dri/swrast_dri.so opengl
'

there() { # whether PROBE finds its package
  case $1 in
    program:*) command -v "${1#*:}" >/dev/null 2>&1 ;;
    python:*) command -v "$PYTHON" >/dev/null 2>&1 && "$PYTHON" -c "import ${1#*:}" >/dev/null 2>&1 ;;
    library:*) ldconfig -p 2>/dev/null | grep -q "${1#*:} " ;;
    file*) for file in ${1#*:}; do [ -e "$file" ] && return 0; done; return 1 ;;
  esac
}

lacking() { # a line for each package that is not there; for the tests of one marker, where it is given
  echo "$PACKAGES" | while read -r package probe markers; do
    [ -n "$package" ] || continue
    [ $# = 0 ] || [ "$markers" = "$1" ] || continue
    there "$probe" && continue
    for marker in $markers; do echo "$marker package $package"; done
  done | sort -u
}

conditions() { # a line for each thing that no package gives
  if [ "$(id -u)" != 0 ]; then
    for marker in slurm sky gridengine disk; do echo "$marker do run as root"; done
  elif ! unshare --pid --mount --fork true 2>/dev/null; then
    for marker in slurm sky disk; do echo "$marker do allow namespaces (docker run --privileged)"; done
  fi
  [ -w /dev/fuse ] || echo "fuse do make /dev/fuse writable"
}

packages() { lacking "$@" | cut -d ' ' -f 3 | sort -u | tr '\n' ' '; }

install() { # what of these markers is missing
  wanted=$(packages "$@")
  [ -n "$wanted" ] || return 0
  if ! command -v apt-get >/dev/null; then root=none
  elif [ "$(id -u)" = 0 ]; then root=
  elif sudo -n true 2>/dev/null; then root='sudo -n'
  else root=none; fi
  if [ "$root" != none ]; then
    echo "tests/packages.sh: apt-get install $wanted"
    $root apt-get update -qq
    # In one go, which is quicker; one by one where the distribution lacks a name.
    apt "$wanted" 2>/dev/null || for package in $wanted; do apt "$package"; done
  fi
  left=$(packages base)
  [ -z "$left" ] || { echo "tests/packages.sh: install these first: apt-get install $left" >&2; return 1; }
}

apt() {
  # shellcheck disable=SC2086 # words
  $root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $1 >/dev/null
}

case ${1-} in
  base) install base ;;
  install) install ;;
  missing) lacking; conditions ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
