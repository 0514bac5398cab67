# A plugin in Perl, with what the package perl-base holds: gives as many numbers as its task says.
use strict;
use warnings;

$| = 1;
while (my $line = <STDIN>) {
    my ($id, $method) = $line =~ /^\{"id":(\d+),"method":"(\w+)"/ or next;
    if ($method eq 'hello') {
        print qq({"id":$id,"result":{"protocol":1,"name":"numbers","version":"2.0","methods":["run","squares"]}}\n);
    } elsif ($method eq 'init') {
        print qq({"id":$id,"result":{"language":"perl"}}\n);
    } elsif ($method eq 'verify') {
        my $is_good = $line =~ /"key":"\w+"/;
        print $is_good ? qq({"id":$id,"result":null}\n) : qq({"id":$id,"error":{"message":"no key"}}\n);
    } elsif ($method eq 'tasks') {
        print qq({"id":$id,"item":{"count":$_}}\n) for (3, 5);
        print qq({"id":$id,"result":null}\n);
    } elsif ($method eq 'run' or $method eq 'squares') {
        my ($count) = $line =~ /"count":(\d+)/;
        for my $number (1 .. ($count // 0)) {
            my $value = $method eq 'run' ? $number : $number * $number;
            my $state = $number % 7 ? 'SUCCESS' : 'FAILURE';
            print qq({"id":$id,"item":{"state":"$state","value":$value}}\n);
        }
        print qq({"id":$id,"result":null}\n);
    } else {
        print qq({"id":$id,"error":{"message":"there is no method $method"}}\n);
    }
}
