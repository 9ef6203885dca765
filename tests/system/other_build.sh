#!/bin/sh
# Builds a program of Debian's, GeodSolve of geographiclib-tools, once more: from the same source, with another compiler,
# against libc++ and musl instead of libstdc++ and glibc.  Prints where it is.  Takes three minutes the first time.
#
#     export GRIDBOT_TEST_GEODSOLVE=$(tests/system/other_build.sh FOLDER)
set -eu
mkdir -p "$1"
cd "$1"
if [ ! -x GeodSolve ]; then
    # Sources of the very archives that this machine's packages come from, signatures checked as for those.
    mkdir -p apt/lists/partial headers/GeographicLib
    apt-get indextargets --format 'deb-src $(SITE) $(RELEASE) $(COMPONENT)' \
        'Identifier: Packages' 'Origin: Debian' >apt/sources.list
    apt="-qq -o Dir::Etc::SourceList=$PWD/apt/sources.list -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists=$PWD/apt/lists"
    apt-get $apt update >&2
    apt-get $apt source --download-only geographiclib >&2
    mkdir -p source
    tar -xzf geographiclib_*.orig.tar.gz -C source --strip-components 1
    python3 -m venv venv
    venv/bin/pip install -q ziglang >&2
    # What its configuration would write there is given below.
    : >headers/GeographicLib/Config.h
    cd source
    ZIG_GLOBAL_CACHE_DIR=$OLDPWD/cache ../venv/bin/python -m ziglang c++ -target x86_64-linux-musl -O2 \
        -DGEOGRAPHICLIB_VERSION_STRING='"other"' -DGEOGRAPHICLIB_DATA='"/"' -DGEOGRAPHICLIB_PRECISION=2 \
        -I ../headers -I include -I man tools/GeodSolve.cpp src/Geodesic*.cpp src/Math.cpp src/DMS.cpp \
        src/Utility.cpp src/EllipticFunction.cpp src/DST.cpp -o ../GeodSolve >&2
    cd ..
fi
echo "$PWD/GeodSolve"
