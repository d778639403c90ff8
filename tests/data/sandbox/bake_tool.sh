mkdir -p "$PREFIX"
cat > "$PREFIX/tool" <<'END'
#!/bin/sh
echo ran "$1"
END
chmod +x "$PREFIX/tool"
ln -s "$PREFIX/tool" /usr/local/bin/tool
