module wiretape

go 1.26

require github.com/cenkalti/backoff/v5 v5.0.3
