#!/bin/sh
# A plugin in the shell: gives the words of its task, one result each. It needs nothing but a POSIX shell.
# The host writes "id" first and "method" second, without spaces, so a line can be taken apart without a JSON parser.
say() { printf '%s\n' "$1"; }
while IFS= read -r line; do
  id=${line#*'{"id":'}
  id=${id%%,*}
  method=${line#*'"method":"'}
  method=${method%%'"'*}
  case $method in
    hello) say "{\"id\":$id,\"result\":{\"protocol\":1,\"name\":\"words\",\"version\":\"1.2\",\"methods\":[\"run\"]}}" ;;
    init) say "{\"id\":$id,\"result\":{\"language\":\"sh\"}}" ;;
    verify)
      case $line in
        *'"token":"'?*) say "{\"id\":$id,\"result\":null}" ;;
        *) say "{\"id\":$id,\"error\":{\"message\":\"no token\"}}" ;;
      esac ;;
    tasks)
      for words in 'one two' 'three'; do say "{\"id\":$id,\"item\":{\"words\":\"$words\"}}"; done
      say "{\"id\":$id,\"result\":null}" ;;
    run)
      words=${line#*'"words":"'}
      words=${words%%'"'*}
      for word in $words; do say "{\"id\":$id,\"item\":{\"state\":\"SUCCESS\",\"word\":\"$word\"}}"; done
      say "{\"id\":$id,\"result\":null}" ;;
    *) say "{\"id\":$id,\"error\":{\"message\":\"there is no method $method\"}}" ;;
  esac
done
